return plan { model = require 'models.mixtral' { size = 'tiny', capacity_factor = 'dropless' },
  cluster = require 'clusters.local_cpu' {}, batch = { micro = 1, seq = 64 },
  mesh = { dp_shard = 4, ep = 2 }, parallel = { ep { bound = 2 }, fsdp2 {} } }
