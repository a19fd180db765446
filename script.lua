return plan { model = require 'models.llama' { size = 'tiny', layers = 4 }, batch = { global = 8, seq = 64 },
  mesh = { tp = 2 },
  parallel = { tp { sequence = true } } }
