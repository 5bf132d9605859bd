"""Importers: recorded sessions of other programs become sessions of ours.

``import_file`` (``load.py``) is the entry. The parser of a file format yields items
(``source/items.py``), and the recorder makes records of them (``recording/recorder.py``).
"""
