-- expect: ok moe-layers 1,3 | experts 4 | parameters 590912
-- expect: ok local layers.0.mlp.up_proj.weight 64,256 | local layers.1.mlp.w3.weight 4,64,256
return require "dialects.kempnerforge" {
  world = 1,
  model = { dim = 64, n_layers = 4, n_heads = 8, vocab_size = 256, num_experts = 4, moe_frequency = 2 },
  train = { batch_size = 1, seq_len = 64 },
}
