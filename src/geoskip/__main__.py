"""``python -m geoskip``."""

from geoskip.cli import main

main()
