return plan {
  model = { name = "x" },
  batch = { global = 8, micro = 1, seq = 32 },
}
