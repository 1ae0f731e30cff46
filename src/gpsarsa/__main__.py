"""python -m gpsarsa"""

import sys

from gpsarsa.cli import main

if __name__ == "__main__":
    sys.exit(main())
