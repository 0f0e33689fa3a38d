# SPDX-License-Identifier: MIT
"""Tests of the tools: python3 -m unittest discover -s tools/tests -t tools"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
