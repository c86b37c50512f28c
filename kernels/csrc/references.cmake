# Sources common to the builds with CUDA, without CUDA, and emulated. SOURCES is this folder.
set(REFERENCES
  ${SOURCES}/check.cpp
  ${SOURCES}/check_heads.cpp
  ${SOURCES}/check_packed.cpp
  ${SOURCES}/check_vae.cpp
  ${SOURCES}/errors.cpp
  ${SOURCES}/host/guided_step.cpp
  ${SOURCES}/host/heads.cpp
  ${SOURCES}/host/noise.cpp
  ${SOURCES}/host/packed.cpp
  ${SOURCES}/host/rows.cpp
  ${SOURCES}/host/vae.cpp)
