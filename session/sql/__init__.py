"""SQL: text → statement (`parser`), SELECT → query (`select`)."""
