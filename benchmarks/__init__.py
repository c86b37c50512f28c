"""Scripts that measure, and that write the tables and plots of the documents from records."""
