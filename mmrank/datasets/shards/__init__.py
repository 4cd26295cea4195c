"""Images with captions in shards, local or streamed, with stable indices."""
