return plan {
  batch = { global = 8, micro = 1, seq = 32 },
}
