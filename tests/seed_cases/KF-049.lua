-- expect: ok mesh ep=2 | experts 2 | moe-layers 0,1 | count ep all_to_all 8 | equal
return require "dialects.kempnerforge" {
  world = 2,
  model = { dim = 64, n_layers = 2, n_heads = 8, vocab_size = 256, num_experts = 4, moe_top_k = 2 },
  train = { batch_size = 1, seq_len = 64 },
  distributed = { ep = 2 },
}
