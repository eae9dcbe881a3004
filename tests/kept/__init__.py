"""What released versions made, kept as they made it: from 0.3.0 on every key is read and every run resumed.

A folder for each release: `keys.yaml`, documents that hold every key of a run's, a site's and an engine's
configuration, and a dataset and a run on it that two ranks trained under ZeRO-1, with what is to be expected of them
(`expected.json`). `make keep` makes the folder of this version, once, before it is tagged.
"""

from pathlib import Path

FOLDERS = sorted(path.parent for path in Path(__file__).parent.glob("*/expected.json"))
"""Of all releases that are kept."""
