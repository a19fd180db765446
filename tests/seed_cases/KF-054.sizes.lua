-- expect: ok moe-layers 2 | local layers.0.mlp.up_proj.weight 64,256 | local layers.2.mlp.routed.w1.weight 4,64,80
-- expect: ok local layers.2.mlp.shared_expert.down_proj.weight 256,64
-- Experts have 0.3 times the width, rounded to a multiple of 16. Any number of shared experts gives one MLP.
return require "dialects.kempnerforge" {
  world = 1,
  model = { dim = 64, n_layers = 4, n_heads = 8, vocab_size = 256, num_experts = 4, moe_frequency = 3,
    moe_shared_experts = 2, moe_expert_ffn_multiplier = 0.3 },
  train = { batch_size = 1, seq_len = 64 },
}
