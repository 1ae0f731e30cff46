/* Browsers refuse workers to pages that are opened from the disk. There the search runs in a hidden frame. */
window.IFrameWorker = class extends EventTarget {
  constructor(url) {
    super()
    const frame = document.createElement("iframe")
    frame.hidden = true
    frame.answer = (data) => this.dispatchEvent(new MessageEvent("message", { data }))
    document.body.appendChild(frame)
    this.inside = frame.contentWindow
    this.inside.document.open()
    this.ready = new Promise((resolve) => this.inside.addEventListener("load", resolve))
    this.inside.document.write(
      `<script>self.postMessage = (data) => frameElement.answer(data)<\/script><script src="${url}"><\/script>`,
    )
    this.inside.document.close()
  }

  postMessage(data) {
    this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })))
  }
}
if (location.protocol === "file:") window.Worker = window.IFrameWorker
