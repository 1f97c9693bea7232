"""`python -m tiering.cli`: the same as the `onecopy` command."""

import sys

from tiering.cli import main

sys.exit(main())
