-- expect: error[out-of-range] moe_router_z_loss_weight must be non-negative: model.moe_router_z_loss_weight = -1
return require "dialects.kempnerforge" {
  world = 1,
  model = { dim = 64, n_layers = 2, n_heads = 8, vocab_size = 256, num_experts = 8, moe_router_z_loss_weight = -1 },
  train = { batch_size = 1, seq_len = 64 },
}
