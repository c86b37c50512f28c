"""Workers on the nodes of a Ray cluster: the process that talks to Ray for the server, and what runs on a node.

The server itself never imports Ray, which kills its process when the cluster's head dies.
"""
