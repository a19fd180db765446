-- expect: ok moe-layers 0,1 | equal
return require "dialects.kempnerforge" {
  world = 2,
  model = { dim = 64, n_layers = 2, n_heads = 8, vocab_size = 256, num_experts = 4, moe_router_z_loss_weight = 1e-3 },
  train = { batch_size = 1, seq_len = 64 },
}
