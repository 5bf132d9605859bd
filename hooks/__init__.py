"""Hooks: observers of records after the append, and interceptors before it.

``registry`` hands records to observers and is the only home of pyee, ``log`` writes log lines with
structlog, ``trace`` sends spans with OpenTelemetry. Import what you need from these modules: this
one loads none of the three libraries.
"""
