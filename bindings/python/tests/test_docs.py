# SPDX-License-Identifier: MIT
"""What docstrings and the README show is run."""
import doctest
import importlib
import io
import re
import unittest
from contextlib import redirect_stdout

import pagedkv
from support import HERE

MODULES = ("_arrays", "_cache", "_config", "_contract", "_errors", "_library", "_operator",
           "_records", "_save", "_states", "_step", "_tiers")


def load_tests(loader, tests, pattern):
    for name in MODULES:
        module = importlib.import_module(f"pagedkv.{name}")
        tests.addTests(doctest.DocTestSuite(module, extraglobs=vars(pagedkv)))
    return tests


class Readme(unittest.TestCase):
    def test_programs_of_the_readme_print_what_it_says(self):
        text = (HERE.parent / "README.md").read_text()
        blocks = re.findall(r"```python\n(.*?)```(?:\s+```text\n(.*?)```)?", text, flags=re.S)
        self.assertGreater(len(blocks), 1)
        for program, printed in blocks:
            out = io.StringIO()
            with redirect_stdout(out):
                exec(compile(program, "README.md", "exec"), {})
            self.assertEqual(out.getvalue(), printed)

    def test_every_public_name_has_a_docstring(self):
        for name in pagedkv.__all__:
            self.assertTrue(getattr(pagedkv, name).__doc__, name)
