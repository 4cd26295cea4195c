"""AP-Loss, aLRP and Rank & Sort, by error-driven update."""
