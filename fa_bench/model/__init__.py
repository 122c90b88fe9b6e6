"""Pure functions of sizes and data sheets: FLOPs, bounds, DRAM traffic, roofline, occupancy, and the GPUs."""
