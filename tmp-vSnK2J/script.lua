return plan { model = require 'models.llama' { size = 'tiny', layers = 8 },
  batch = { global = 3, seq = 16 }, mesh = { pp = 2 },
  parallel = { pp { csv = 'own.csv' } } }
