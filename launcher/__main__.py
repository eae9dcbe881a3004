"""`python -m launcher` is `zeromt`."""

import sys

from launcher.cli import main

sys.exit(main())
