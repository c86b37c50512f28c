"""Bundles: folders of networks, plans and the manifest that describes them."""
