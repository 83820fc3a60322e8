"""What a batch reads, and how far its windows fire."""
