return plan { model = require 'models.llama' { size = 'tiny', layers = 8 },
  batch = { global = 8, seq = 16 }, mesh = { pp = 4 },
  parallel = { pp { csv = 'own.csv', placement = 'v' } } }
