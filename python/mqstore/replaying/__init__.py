"""Messages of a store sent into a live cluster: which ones, by what client, with what result."""
