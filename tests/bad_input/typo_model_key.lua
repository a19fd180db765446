return plan {
  model = { biuld = function() end },
  batch = { global = 8, micro = 1, seq = 32 },
}
