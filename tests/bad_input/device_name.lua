return plan {
  model = require "models.llama" "tiny", batch = { global = 2, micro = 1, seq = 32 },
  cluster = { name = "ours", nodes = 1, devices_per_node = 2, intra_bytes_per_s = 50e9, device = "H200" },
}
