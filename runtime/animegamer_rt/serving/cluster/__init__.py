"""Workers on the nodes of a Ray cluster: the process that speaks to Ray for the server, and what runs on a node.

The server itself never imports Ray, which ends the process that uses it when the cluster's head is gone.
"""
