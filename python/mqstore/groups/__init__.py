"""Consumer groups: sharing of queues, retries, dead letters and delayed messages.

Open ``group.py`` first; ``in_flight.py`` has the messages that it has given out. ``processing.py``
runs a handler over a topic, ``failed.py`` makes retries and dead letters, and ``delays.py``
delivers them and delayed messages when they are due.
"""
