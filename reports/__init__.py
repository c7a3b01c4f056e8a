"""What people look at: tables from the tidy result rows (floor 3)."""
