return plan {
  model = require "models.llama" "tiny",
  cluster = require "clusters.gpu" { gpu = "H1000", devices_per_node = 1 }, batch = { global = 2, seq = 16 },
}
