"""Making the environment: from registries, a site's torch, or a folder of wheels."""
