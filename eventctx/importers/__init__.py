"""Importers: recorded sessions of other programs become sessions of ours.

One parser per file format yields items (``items.py``), the recorder makes records of them
(``recorder.py``), and ``load.py`` is the way in: ``import_file``.
"""
