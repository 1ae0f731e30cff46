"""What MkDocs cannot know: the changelog, which lies outside of docs/, is a page of the site as well."""

from pathlib import Path

from mkdocs.structure.files import File


def on_files(files, config):
    changelog = Path(config.config_file_path).with_name("CHANGELOG.md")
    files.append(File.generated(config, "changelog.md", content=changelog.read_text(encoding="utf-8")))
    return files
