"""Messages and their bytes: version 1 of the protocol in client/PROTOCOL.md.

protocol.json is the table of all messages; PROTOCOL.md, the schema and the vectors are generated from it.
`worker_messages`, between the server and its own workers, are not part of the protocol.
"""
