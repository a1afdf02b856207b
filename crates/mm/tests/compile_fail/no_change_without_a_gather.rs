//! An address range neither goes nor gets other rights without a gather, which settles when the change is over.
use mm::api::Prot;
use mm::space::{Vma, VmaTree};
use mm::units::*;

pub fn change(vmas: &mut VmaTree, vma: Vma) {
    vmas.remove(Vpn(1));
    vmas.protect(Vpn(1), Prot::READ);
    vmas.update(Vpn(1), |vma| vma.view.prot = Prot::READ);
    vmas.join(Vpn(1), |_, _| ());
    vmas.insert(vma);
}

fn main() {}
