-- KempnerForge's 13B on 24 H200, 4 in a node: tp over the GPUs of a node, FSDP over the 6 nodes, all blocks recomputed.
local cluster = require "clusters.hgx_h200" { nodes = 6 }
cluster.name, cluster.devices_per_node, cluster.nics_per_node = "kempner_h200", 4, 4
return require "dialects.kempnerforge" {
  cluster = cluster,
  model = { dim = 5120, n_layers = 40, n_heads = 40, n_kv_heads = 8, vocab_size = 128256,
    ffn_dim_multiplier = 1.3, max_seq_len = 4096, rope_theta = 500000.0 },
  train = { batch_size = 2, seq_len = 4096, max_steps = 1000, grad_accum_steps = 4, compile_model = false,
    activation_checkpointing = "full" },
  optimizer = { lr = 3e-4 },
  scheduler = { warmup_steps = 50 },
  distributed = { dp_shard = 6, tp = 4 },
}
