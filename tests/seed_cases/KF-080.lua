-- expect: ok mesh dp_shard=2 | parallel fsdp2(reshard), compile(model) | experts 4 | count ep all_to_all 0 | equal
return require "dialects.kempnerforge" {
  world = 2,
  model = { dim = 64, n_layers = 2, n_heads = 8, vocab_size = 256, num_experts = 4 },
  train = { batch_size = 1, seq_len = 64 },
  distributed = { ep = 1 },
}
