"""`python -m zeromt` is `zeromt`."""

import sys

from zeromt.cli.main import main

sys.exit(main())
