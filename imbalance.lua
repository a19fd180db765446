return plan { model = require 'models.mixtral' { size = 'tiny', capacity_factor = 'dropless' },
  cluster = require 'clusters.dgx_h100' { nodes = 1 },
  batch = { micro = 1, seq = 64 }, mesh = { dp_shard = 2, ep = 4 },
  parallel = { ep { bound = 4 }, fsdp2 {} } }
