"""The server, its worker, the wire between them and its clients, and the store."""
