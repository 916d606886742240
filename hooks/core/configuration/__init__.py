"""What a hook saves, and when: its parameters, JSON configuration and collections."""
