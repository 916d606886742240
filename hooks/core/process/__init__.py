"""What a hook knows of its process: its rank, its machine, its end."""
