"""What every source, operator and reader stands on: types, errors, storage, record logs."""
