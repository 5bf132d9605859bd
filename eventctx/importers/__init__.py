"""Importers: recorded sessions of other programs become sessions of ours.

``import_file`` (``load.py``) imports one file, ``import_paths`` (``many.py``) what is in folders,
``Follower`` (``following.py``) what changes there. A format is a row of ``format_table.py``: its
parser yields items (``source/items.py``), and the recorder makes records of them
(``recording/recorder.py``).

Other rims import two modules: ``load``, and ``recorded_calls`` to record calls of model APIs.
"""
