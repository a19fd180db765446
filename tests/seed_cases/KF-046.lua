-- expect: ok mesh dp_shard=4 | parallel float8(tensorwise, 8-bit gathers), fsdp2(reshard) | precision bf16 bf16 f32 | rest bf16 | float8 15 of 15 | equal
return require "dialects.kempnerforge" {
  world = 4,
  model = { dim = 64, n_layers = 2, n_heads = 4, vocab_size = 256 },
  train = { batch_size = 1, seq_len = 64, mixed_precision = "fp8", compile_model = false },
  distributed = { dp_shard = 4 },
}
