//! The provider author's side of BigFleet: the Backend trait, the server around it, stores, and the fakecloud provider.
